# Looks at files of a large tree.
set $dir=/tmp
set $nfiles=10000
set $meandirwidth=20
set $meanfilesize=1k
set $filesize=randvar(type=gamma,mean=$meanfilesize,gamma=1500)
set $nthreads=20
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=100
define process name=micro1,instances=1 {
  thread name=micro1,memsize=10m,instances=$nthreads {
    flowop statfile name=stat1,filesetname=bigfileset
  }
}
run 60
