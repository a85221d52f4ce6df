# Makes the leaf directories of a tree, and ends when all exist.
set mode quit firstdone
set $dir=/tmp
set $ndirs=10000
set $meandirwidth=100
set $nthreads=16
define fileset name=bigfileset,path=$dir,size=0,entries=0,leafdirs=$ndirs,dirwidth=$meandirwidth,prealloc=0
define process name=maker1,instances=1 {
  thread name=maker1,memsize=10m,instances=$nthreads {
    flowop makedir name=mkdir1,filesetname=bigfileset
  }
}
run
