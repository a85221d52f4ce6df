# Makes the leaf directories of a tree, and ends when all exist.
set mode quit firstdone
set $dir=/tmp
set $ndirs=10000
set $meandirwidth=100
set $nthreads=16
define fileset name=bigfileset,path=$dir,size=0,entries=0,leafdirs=$ndirs,dirwidth=$meandirwidth,prealloc=0
define process name=maker,instances=1 {
  thread name=maker,memsize=10m,instances=$nthreads {
    flowop makedir name=mkdir,filesetname=bigfileset
  }
}
run
