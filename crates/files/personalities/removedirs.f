# Removes the leaf directories of a tree, and ends when none is left.
set mode quit firstdone
set $dir=/tmp
set $ndirs=10000
set $meandirwidth=100
set $nthreads=16
define fileset name=bigfileset,path=$dir,size=0,entries=0,leafdirs=$ndirs,dirwidth=$meandirwidth,prealloc=100
define process name=remover1,instances=1 {
  thread name=remover1,memsize=10m,instances=$nthreads {
    flowop removedir name=rmdir1,filesetname=bigfileset
  }
}
run
